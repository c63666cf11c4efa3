"""One trial: Tune's face, what it does step by step, requests of its loops, failures, the mailbox."""
