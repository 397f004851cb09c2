"""JUDGE: facts and tables become findings; error text becomes explanations. Pure: nothing here looks or acts."""
