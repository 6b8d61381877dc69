"""Where units of work run: in this process, in local workers, on Ray, on Slurm. All give the same bits."""
