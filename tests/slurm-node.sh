#!/usr/bin/env bash
# A real SLURM of one node on the loopback address, for tests/sweep/test_sweep_slurm.py.
# Needs (Debian): apt-get install -y slurmctld slurmd slurm-client munge
#   slurm-node.sh start DIR   then: export SLURM_CONF=DIR/slurm.conf
#   slurm-node.sh stop DIR
set -euo pipefail
dir=$(mkdir -p "$2" && cd "$2" && pwd); host=$(hostname -s)
if [ "$1" = stop ]; then for d in slurmd slurmctld; do [ -f "$dir/$d.pid" ] && kill "$(cat "$dir/$d.pid")" || true; done; exit 0; fi
mkdir -p "$dir/state" "$dir/spool"
cat > "$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
MaxArraySize=1001
SlurmctldPort=${SLURM_TEST_PORT:-16817}
SlurmdPort=$((${SLURM_TEST_PORT:-16817} + 1))
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$dir/slurm.conf
munge -n >/dev/null 2>&1 || { mkdir -p /run/munge; chown munge /run/munge; runuser -u munge -- munged; sleep 1; }
slurmctld -f "$SLURM_CONF"; slurmd -f "$SLURM_CONF" -N "$host"
for _ in $(seq 20); do sinfo -h -o %T 2>/dev/null | grep -q idle && { echo "export SLURM_CONF=$SLURM_CONF"; exit 0; }; sleep .5; done
tail -n 5 "$dir/slurmctld.log" "$dir/slurmd.log" >&2; exit 1
