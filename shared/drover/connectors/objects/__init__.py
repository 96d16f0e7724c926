"""Files in object stores: S3 and what speaks like it, Google Cloud Storage, Azure."""
