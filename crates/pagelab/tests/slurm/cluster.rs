//! A Slurm cluster with one node for the tests, in a directory of its own: munged, slurmctld and slurmd from Debian's
//! packages.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::*;

/// The timeout for any action of Slurm, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Slurm's services, which are not in every user's PATH.
const SERVICES: [&str; 3] = ["munged", "slurmctld", "slurmd"];

/// A running cluster. When this is dropped, the cluster ends together with its jobs.
pub struct Cluster {
    directory: TempDir,
    services: Vec<Child>,
}

/// Two free ports below the range from which the kernel gives ports to other programs (`ip_local_port_range`).
fn free_ports() -> [u16; 2] {
    let first = 10_000 + (std::process::id() % 10_000) as u16 * 2;
    let mut free = (first..32_768).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [(); 2].map(|()| free.next().expect("a free port"))
}

/// Whether Slurm is installed here.
pub fn slurm_is_here() -> bool {
    let service = |name: &str| ["/usr/sbin", "/sbin"].iter().any(|directory| Path::new(directory).join(name).is_file());
    let services = ["munge", "slurmctld", "slurmd"].into_iter().zip(SERVICES.map(service));
    let needed: Vec<(&str, bool)> = services.chain([("slurm-client", has("sbatch")), root()]).collect();
    needs(&needed)
}

impl Cluster {
    /// Starts a cluster with these additional lines of slurm.conf.
    pub fn start(lines: &str) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let mut cluster = Cluster { directory, services: Vec::new() };
        cluster.write_configuration(lines);
        let at = |name: &str| cluster.path(name);
        let munged = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("munge.key")),
            format!("--socket={}", at("munge.socket")),
            format!("--pid-file={}", at("munged.pid")),
            format!("--log-file={}", at("munged.log")),
            format!("--seed-file={}", at("munged.seed")),
        ];
        let slurmd = ["-D", "-N", "node1", "-f", &at("slurm.conf")].map(str::to_owned);
        let slurmctld = ["-D", "-f", &at("slurm.conf")].map(str::to_owned);
        cluster.serve(SERVICES[0], &munged);
        assert!(within(PATIENCE, || Path::new(&cluster.path("munge.socket")).exists()), "no munged");
        cluster.serve(SERVICES[1], &slurmctld);
        cluster.serve(SERVICES[2], &slurmd);
        let is_idle = || cluster.ask("sinfo", &["--noheader", "--format=%T"]).trim() == "idle";
        assert!(within(PATIENCE, is_idle), "the node does not come up: {}", cluster.logs());
        cluster
    }

    fn write_configuration(&self, lines: &str) {
        let key: Vec<u8> =
            std::iter::repeat_with(|| fs::read("/proc/sys/kernel/random/uuid").unwrap()).take(4).flatten().collect();
        fs::write(self.path("munge.key"), key).unwrap();
        fs::set_permissions(self.path("munge.key"), Permissions::from_mode(0o600)).unwrap();
        ["state", "spool"].iter().for_each(|name| fs::create_dir(self.path(name)).unwrap());
        let [controller, node] = free_ports();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let (at, host) = (self.directory.path().display(), host.trim());
        let text = format!(
            "ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
SlurmctldLogFile={at}/slurmctld.log
SlurmdLogFile={at}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait=5
{lines}
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=pagelab-64 Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"
        );
        fs::write(self.path("slurm.conf"), text).unwrap();
    }

    fn serve(&mut self, name: &str, arguments: &[String]) {
        let log = File::create(self.path(&format!("{name}.err"))).unwrap();
        let mut command = Command::new(format!("/usr/sbin/{name}"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env("SLURM_CONF", self.path("slurm.conf"));
        self.services.push(command.spawn().unwrap());
    }

    /// The path of a file in the directory of the cluster.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The output of a program of Slurm.
    pub fn ask(&self, program: &str, words: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(words).env("SLURM_CONF", self.path("slurm.conf")).current_dir(self.directory.path());
        command.ran().stdout
    }

    /// The jobs that wait or run: the number of the job and of its task, the name, the state, the reason.
    pub fn queue(&self) -> Vec<String> {
        let queue = self.ask("squeue", &["--noheader", "--array", "--format=%i %j %T %r"]);
        queue.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Waits until a job is in this state.
    pub fn await_state(&self, job: &str, words: &str) {
        let is_there = || self.queue().iter().any(|line| line.starts_with(&format!("{job} ")) && line.contains(words));
        assert!(within(PATIENCE, is_there), "{job} is not {words}: {:?}\n{}", self.queue(), self.logs());
    }

    /// Waits until no job is waiting or running.
    pub fn await_end(&self) {
        assert!(within(PATIENCE, || self.queue().is_empty()), "{:?}\n{}", self.queue(), self.logs());
    }

    fn logs(&self) -> String {
        let logs = ["slurmctld.log", "slurmd.log", "munged.err"].map(|name| fs::read_to_string(self.path(name)));
        logs.into_iter().flatten().collect::<Vec<_>>().join("\n---\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let job = |line: &String| line.split(['_', ' ']).next().unwrap_or_default().to_owned();
        let jobs: Vec<String> = self.queue().iter().map(job).collect();
        let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
        if !jobs.is_empty() {
            self.ask("scancel", &jobs);
            within(Duration::from_secs(20), || self.queue().is_empty());
        }
        for service in self.services.iter_mut().rev() {
            send("TERM", service.id());
            if !within(Duration::from_secs(10), || service.try_wait().is_ok_and(|status| status.is_some())) {
                let _ = service.kill();
            }
            let _ = service.wait();
        }
    }
}
