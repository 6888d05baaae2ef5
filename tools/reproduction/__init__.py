"""The paper's tables and figures made again by one command, and the page that tells of them."""
