"""Format of a checkpoint in a store: manifest, index, safetensors, blocks; read, verified, exported. No torch."""
