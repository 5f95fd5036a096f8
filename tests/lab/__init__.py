"""Three virtual Sparks on one machine: real systemd hosts in namespaces, cabled as a triangle."""
