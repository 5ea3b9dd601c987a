"""The methods: update equations, peer-to-peer and through a server, and the initializations before them."""
