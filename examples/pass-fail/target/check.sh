# Exits with 0 if roman.sh is right.
set -eu
for pair in 1:I 4:IV 9:IX 14:XIV 40:XL 90:XC 400:CD 1987:MCMLXXXVII 2024:MMXXIV 3999:MMMCMXCIX; do
  got=$(sh roman.sh "${pair%:*}")
  [ "$got" = "${pair#*:}" ] || { echo "${pair%:*} is ${pair#*:}, not $got" >&2; exit 1; }
done
