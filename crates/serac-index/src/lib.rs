//! Work of the room `serac-index`.
