# Install rules: see daemon, replica and tool.
