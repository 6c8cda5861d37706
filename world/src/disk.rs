//! Files and directories, real and simulated.
