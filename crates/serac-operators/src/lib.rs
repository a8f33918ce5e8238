//! Work of the room `serac-operators`.
