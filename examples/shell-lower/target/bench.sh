# Prints the steps that find.awk takes for 400 numbers; exits with 1 if what it finds is wrong.
set -eu
numbers() { awk 'BEGIN { s = 3; for (i = 0; i < 400; i++) { s = (s * 75 + 74) % 65537; print s % 500 } }'; }
found=$(numbers | awk -f find.awk 2>steps.log)
[ "$found" = "$(numbers | sort -n | uniq -d)" ] || { echo "the numbers are wrong" >&2; exit 1; }
awk '$1 == "steps" { print $2 }' steps.log
