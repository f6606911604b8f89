"""Object stores behind one protocol: a local folder, any S3. Checkpoints, records and models all go through it."""
