"""Makes the two local images, from package registries alone: no container registry is asked for anything."""
