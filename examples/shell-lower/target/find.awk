# Prints the numbers that come more than once, each once, sorted; counts its steps.
{ value[NR] = $1 }
END {
  for (i = 1; i <= NR; i++) for (j = i + 1; j <= NR; j++) { steps++; if (value[i] == value[j]) twice[value[i]] }
  for (v in twice) print v | "sort -n"
  close("sort -n")
  print "steps", steps > "/dev/stderr"
}
