"""Jobs: how a program is started, limited, watched, and ended with everything that it started."""
