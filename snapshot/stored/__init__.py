"""What a snapshot is once it is stored: parts, certificate, manifest, and how their bytes prove themselves."""
