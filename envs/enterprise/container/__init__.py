"""What runs inside the containers of an exported task; `envs.enterprise.harbor` copies these files."""
