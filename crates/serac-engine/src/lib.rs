//! Work of the room `serac-engine`.
