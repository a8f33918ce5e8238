//! Work of the room `serac-sql`.
