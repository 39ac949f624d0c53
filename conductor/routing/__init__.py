"""Where a message goes next: sides and links, the successor envelope, the handshake of each hop."""
