"""The modes: what each adds to the machines, a room a strand. Only `snapshot.assembly` and shells import them."""
