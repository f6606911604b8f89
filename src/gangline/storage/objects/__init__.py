"""What all stores have in common: protocol, keys, blobs, growing files, code layers, multipart uploads. No client."""
