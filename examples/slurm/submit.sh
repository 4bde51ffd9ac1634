#!/bin/bash
# Submits an ingest of N parts, their merge, and an audit in N parts, each when the one
# before is done, and prints the ids of the jobs.
#
#   submit.sh N DS [flags of hsx ingest] PATH...
#
# HSX names the program, AUDIT the flags of hsx audit, AUDIT_DIR where its reports go
# (DS.audit), SBATCH_* what sbatch takes for all jobs, such as SBATCH_PARTITION.
set -eu
if [ $# -lt 3 ]; then
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
of=$1 ds=$2
shift 2
case $ds in
*://*) # reports go to a directory, parts of the dataset to the store
	export AUDIT_DIR=${AUDIT_DIR:-${ds##*/}.audit}
	;;
esac
here=$(cd "$(dirname "$0")" && pwd)
job() { sbatch --parsable "$@" | cut -d';' -f1; } # without the cluster's name
ingest=$(job --array="1-$of" "$here/ingest.sbatch" "$ds" "$@")
merge=$(job --dependency="afterok:$ingest" --kill-on-invalid-dep=yes "$here/merge.sbatch" "$of" "$ds")
# shellcheck disable=SC2086 # several flags
audit=$(job --array="1-$of" --dependency="afterok:$merge" --kill-on-invalid-dep=yes "$here/audit.sbatch" "$ds" ${AUDIT:-})
# shellcheck disable=SC2086
report=$(job --dependency="afterok:$audit" --kill-on-invalid-dep=yes "$here/report.sbatch" "$of" "$ds" ${AUDIT:-})
echo "ingest $ingest merge $merge audit $audit report $report"
