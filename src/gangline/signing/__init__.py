"""Keys, provenance, bills of materials and seals: what records, images and models are signed with."""
