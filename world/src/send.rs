//! Sends parts, bytes or file slices, over a socket.
