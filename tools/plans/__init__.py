"""What bppsa-plan tells and draws of plans."""
