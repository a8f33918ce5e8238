//! The frames that client and server exchange.
