# Gives points to a prompt: for what it must say, less for length, long sentences and filler words.
BEGIN { FS = "[^A-Za-z]+"; split("summarise sentences names numbers invent", must); split("very really perhaps actually possibly course great", filler) }
{ text = text " " tolower($0); for (i = 1; i <= NF; i++) if ($i != "") words++; stops += gsub(/[.!?]/, "&") }
END {
  for (i in must) if (index(text, must[i])) points += 20
  for (i in filler) if (index(text, filler[i])) points -= 5
  points -= words / 4
  if (stops == 0 || words / stops > 15) points -= 10
  printf "{\"primary\": %.2f, \"sub_scores\": {\"words\": %d}}\n", points, words
}
