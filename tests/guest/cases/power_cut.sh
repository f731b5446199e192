# Every disk of DISKS takes the records of SEED from JOBS writers with PLACES each, until its server is
# killed; and then the guest is.
for disk in $DISKS; do records "$disk" "$SEED" "$JOBS" "$PLACES" & done
wait
say "no disk is left"
hear
