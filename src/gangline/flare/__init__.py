"""NVIDIA FLARE as the carrier of a federation: the coordinator's jobs, and all that a member decides for itself."""
