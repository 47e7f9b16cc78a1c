# roman.sh NUMBER: prints a number from 1 to 3999 in Roman numerals.
n=$1 out=
for pair in 1000:M 500:D 100:C 50:L 10:X 5:V 1:I; do
  while [ "$n" -ge "${pair%:*}" ]; do out=$out${pair#*:}; n=$((n - ${pair%:*})); done
done
echo "$out"
