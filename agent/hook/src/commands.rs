//! What each request does: the commands, and what is remembered from one to the next.
//!
//! Who may ask, and how requests come in and answers go out, is in [`crate::session`].

use crate::access::{Access, Failure, enter};
use crate::changed::{Changed, Former, PutBack};
use crate::guard::GUARD;
use crate::job::{Job, Worker};
use crate::lease::{Agent, Lease};
use crate::rocksdb::{Failed, LiveFiles, RocksDb};
use crate::verify::directory;
use crate::{log, owner, registered, scanners, settable, started};
use sexton_hook_protocol::{
    COMPACT_FILES_MAX, ColumnFamilyLoad, ColumnFamilyPointers, CompactFiles, CompactRange, ErrorKind, Hello,
    LOADS_MAX, OPTIONS_MAX, PROPERTY_NAME_BYTES_MAX, PROTOCOL_VERSION, Request, Response, SetOptions,
    VerifiedColumnFamily,
};
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether the agent is gone, while there are options to put back.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Verified column families that are remembered; Ozone's manager has some 30.
const KNOWN_MAX: usize = 256;

/// What a conversation works with; lives as long as the listener.
pub struct Hook {
    rocksdb: Option<Arc<RocksDb>>,
    /// Why the guard does not stand in front of the owners' calls.
    unguarded: Option<String>,
    worker: Worker,
    known: Vec<ColumnFamilyPointers>,
    lease: Lease,
    /// Options to put back when the agent that holds the lease is gone.
    changed: Changed,
}

/// What a request comes to.
pub enum Answer {
    One(Response),
    /// Files, in as many responses as they take.
    Files(LiveFiles),
    /// The response of a hook that is no more.
    Last(Response),
}

impl Hook {
    /// A hook for the RocksDB that was found, if any, and why its owners' calls are not guarded, if so.
    pub fn new(rocksdb: Option<Arc<RocksDb>>, unguarded: Option<String>) -> Hook {
        Hook {
            rocksdb,
            unguarded,
            worker: Worker::default(),
            known: Vec::new(),
            lease: Lease::default(),
            changed: Changed::default(),
        }
    }

    /// The agent introduces itself: for as long as it holds the lease it has been heard of now.
    pub fn greet(&mut self, agent: Agent) -> Response {
        self.lease.seen(agent);
        Response::Hello(self.hello())
    }

    /// Does what one request asks for. Who comes without a greeting is nobody, and can only have the hook
    /// detached.
    pub fn answer(&mut self, agent: Option<Agent>, request: Request) -> Result<Answer, Failure> {
        if let Some(agent) = agent {
            self.lease.seen(agent);
        }
        // What another agent has changed is put back before the next one acts.
        self.tend();
        if is_acting(&request) {
            self.lease.take(agent).map_err(|message| (ErrorKind::Taken, message))?;
        }
        let response = match request {
            Request::Hello { .. } => Response::Hello(self.hello()),
            Request::Databases {} => Response::Databases { column_families: self.databases() },
            Request::SstFiles { column_family } => return self.live_files(&column_family).map(Answer::Files),
            Request::Property { column_family, name } => self.property(&column_family, &name)?,
            Request::Loads { column_families } => self.loads(&column_families)?,
            Request::CompactRange(request) => self.compact_range(request)?,
            Request::CompactFiles(request) => self.compact_files(request)?,
            Request::Flush { column_family } => self.flush(column_family)?,
            Request::CompactionStatus { id } => self.worker.status(id)?,
            Request::Cancel { id } => self.worker.cancel(id)?,
            Request::SetOptions(request) => self.set_options(&request)?,
            Request::ChangedOptions {} => {
                self.changed.retain(|database| GUARD.is_changed(database));
                Response::ChangedOptions { options: self.changed.list() }
            }
            Request::Scanners {} => Response::Scanners { scanners: scanners::read()? },
            Request::SetScrubBandwidth { bytes_per_second } => {
                Response::Scanners { scanners: scanners::set(bytes_per_second)? }
            }
            Request::Detach {} => return self.detach().map(Answer::Last),
        };
        Ok(Answer::One(response))
    }

    fn rocksdb(&self) -> Result<Arc<RocksDb>, Failure> {
        self.rocksdb.clone().ok_or_else(|| {
            (ErrorKind::Unsupported, "RocksDB's C API was not found in this process".to_owned())
        })
    }

    fn hello(&self) -> Hello {
        let rocksdb = self.rocksdb.as_deref();
        Hello {
            protocol_version: PROTOCOL_VERSION,
            hook_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            library: rocksdb.map(|rocksdb| rocksdb.library.clone()),
            functions_found: rocksdb.map(|rocksdb| rocksdb.found.clone()).unwrap_or_default(),
            functions_missing: rocksdb.map(|rocksdb| rocksdb.missing.clone()).unwrap_or_default(),
            unguarded: self.unguarded.clone(),
        }
    }

    /// Takes a pass, checks the pointers and remembers them.
    fn enter(
        &mut self,
        rocksdb: &RocksDb,
        pointers: &ColumnFamilyPointers,
    ) -> Result<Access<'static>, Failure> {
        let access = enter(rocksdb, pointers);
        self.known.retain(|known| known != pointers);
        if access.is_ok() {
            if self.known.len() >= KNOWN_MAX {
                self.known.remove(0);
            }
            self.known.push(pointers.clone());
        }
        access
    }

    fn databases(&mut self) -> Vec<VerifiedColumnFamily> {
        let Some(rocksdb) = self.rocksdb.clone() else { return Vec::new() };
        for registered in registered::all() {
            // What cannot be entered any more is left out below.
            drop(self.enter(&rocksdb, &registered));
        }
        let mut column_families = Vec::new();
        self.known.retain(|pointers| {
            let Ok(access) = enter(&rocksdb, pointers) else { return false };
            let directory = directory(pointers.database);
            column_families.push(VerifiedColumnFamily { pointers: pointers.clone(), directory });
            drop(access);
            true
        });
        column_families
    }

    fn property(&mut self, pointers: &ColumnFamilyPointers, name: &str) -> Result<Response, Failure> {
        let name = CString::new(name)
            .ok()
            .filter(|name| name.as_bytes().len() <= PROPERTY_NAME_BYTES_MAX)
            .ok_or_else(|| (ErrorKind::BadRequest, "not the name of a property".to_owned()))?;
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_read_properties() {
            return Err(unsupported("properties cannot be read"));
        }
        let access = self.enter(&rocksdb, pointers)?;
        let (value, truncated) = rocksdb
            .property(access.handles(), &name)
            .map_or((None, false), |(value, cut)| (Some(value), cut));
        Ok(Response::Property { value, truncated })
    }

    /// Those that are gone by now are left out; none is remembered for it.
    fn loads(&self, column_families: &[ColumnFamilyPointers]) -> Result<Response, Failure> {
        if column_families.len() > LOADS_MAX {
            return Err((ErrorKind::BadRequest, format!("at most {LOADS_MAX} column families at a time")));
        }
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_read_properties() {
            return Err(unsupported("properties cannot be read"));
        }
        let load = |pointers: &ColumnFamilyPointers| {
            let access = enter(&rocksdb, pointers).ok()?;
            let number = |name| rocksdb.property(access.handles(), name)?.0.trim().parse().ok();
            Some(ColumnFamilyLoad {
                name: pointers.name.clone(),
                level0_files: number(c"rocksdb.num-files-at-level0"),
                pending_compaction_bytes: number(c"rocksdb.estimate-pending-compaction-bytes"),
            })
        };
        Ok(Response::Loads { loads: column_families.iter().filter_map(load).collect() })
    }

    fn live_files(&mut self, pointers: &ColumnFamilyPointers) -> Result<LiveFiles, Failure> {
        let rocksdb = self.rocksdb()?;
        let access = self.enter(&rocksdb, pointers)?;
        rocksdb.live_files(access.handles()).ok_or_else(|| unsupported("live SST files cannot be listed"))
    }

    fn compact_range(&mut self, request: CompactRange) -> Result<Response, Failure> {
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_compact() {
            return Err(unsupported("range compaction with options is missing"));
        }
        if let Some(end) = &request.end
            && *end <= request.begin
        {
            return Err((ErrorKind::BadRequest, "the range holds no key: end is not above begin".to_owned()));
        }
        self.enter(&rocksdb, &request.column_family)?;
        self.worker.start(rocksdb, Job::Compact(request)).map(|id| Response::Started { id })
    }

    fn compact_files(&mut self, request: CompactFiles) -> Result<Response, Failure> {
        if request.files.is_empty() || request.files.len() > COMPACT_FILES_MAX || request.output_level == 0 {
            let message =
                format!("one to {COMPACT_FILES_MAX} files are compacted at a time, into level 1 or below");
            return Err((ErrorKind::BadRequest, message));
        }
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_compact_files() {
            return Err(unsupported("compaction of files is missing"));
        }
        self.enter(&rocksdb, &request.column_family)?;
        self.worker.start(rocksdb, Job::CompactFiles(request)).map(|id| Response::Started { id })
    }

    fn flush(&mut self, pointers: ColumnFamilyPointers) -> Result<Response, Failure> {
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_flush() {
            return Err(unsupported("column families cannot be flushed"));
        }
        self.enter(&rocksdb, &pointers)?;
        self.worker.start(rocksdb, Job::Flush(pointers)).map(|id| Response::Started { id })
    }

    fn set_options(&mut self, request: &SetOptions) -> Result<Response, Failure> {
        if request.options.is_empty() || request.options.len() > OPTIONS_MAX {
            return Err((ErrorKind::BadRequest, format!("one to {OPTIONS_MAX} options are set at a time")));
        }
        let changes: Result<Vec<_>, _> = request.options.iter().map(settable::change).collect();
        let changes = changes.map_err(|reason| (ErrorKind::BadRequest, reason))?;
        let rocksdb = self.rocksdb()?;
        let access = self.enter(&rocksdb, &request.column_family)?;
        self.changed.retain(|database| GUARD.is_changed(database));
        if !self.changed.has_room(changes.len()) {
            return Err((ErrorKind::BadRequest, "too many options are to be put back already".to_owned()));
        }
        let values: Vec<_> =
            changes.iter().map(|change| (change.name.clone(), change.value.clone())).collect();
        match rocksdb.set_options(access.handles(), &values) {
            Ok(()) => {
                self.changed.note(&request.column_family, &changes);
                GUARD.note_changed(request.column_family.database);
                Ok(Response::Done {})
            }
            Err(Failed::Missing) => Err(unsupported("these options cannot be set")),
            Err(Failed::Status(words)) => {
                // RocksDB takes them before it writes its OPTIONS file, and keeps them where that fails.
                let restores = changes.into_iter().filter_map(|change| Some((change.name, change.restore?)));
                let restores: Vec<_> = restores.collect();
                if !restores.is_empty() {
                    let _ = rocksdb.set_options(access.handles(), &restores);
                }
                Err((ErrorKind::Failed, words))
            }
        }
    }

    /// Puts options back once the agent that has changed them is gone.
    pub fn tend(&mut self) {
        if !self.changed.is_empty() && self.lease.is_over() {
            self.put_back();
        }
    }

    /// How long [`Hook::tend`] can wait; `None`: there is nothing to wait for.
    pub fn patience(&self) -> Option<Duration> {
        (!self.changed.is_empty()).then_some(LOOK_INTERVAL)
    }

    /// Puts all options back; why not, for those where it failed.
    fn put_back(&mut self) -> Vec<String> {
        let Some(rocksdb) = self.rocksdb.clone() else { return Vec::new() };
        self.changed.retain(|database| GUARD.is_changed(database));
        let known = &self.known;
        let failures = self.changed.put_back(|former| put_back_one(&rocksdb, former, known));
        failures.iter().for_each(|words| log::line(words));
        failures
    }

    /// Ends what runs and takes the guard away; the listener goes when this succeeds.
    fn detach(&mut self) -> Result<Response, Failure> {
        if let (Some(reason), false) = (self.put_back().first(), self.changed.is_empty()) {
            return Err((ErrorKind::Failed, reason.clone()));
        }
        if let Some(id) = self.worker.stop() {
            return Err((ErrorKind::Busy, format!("compaction or flush {id} does not end")));
        }
        if !owner::remove() {
            let message = "somebody else has changed RocksDB's virtual tables since";
            return Err((ErrorKind::Failed, message.to_owned()));
        }
        started::stop();
        Ok(Response::Done {})
    }
}

/// Whether a request takes that no other agent acts on the target.
fn is_acting(request: &Request) -> bool {
    match request {
        Request::Hello { .. }
        | Request::Databases {}
        | Request::SstFiles { .. }
        | Request::Property { .. }
        | Request::Loads { .. }
        | Request::CompactionStatus { .. }
        | Request::ChangedOptions {}
        | Request::Scanners {} => false,
        // Whoever may ask at all may: it is a value to set and to read, and interferes with nothing that
        // another agent has begun.
        Request::SetScrubBandwidth { .. } => false,
        Request::CompactRange(_)
        | Request::CompactFiles(_)
        | Request::Flush { .. }
        | Request::Cancel { .. }
        | Request::SetOptions(_)
        | Request::Detach {} => true,
    }
}

/// Puts an option back, through another handle of its column family where the one that was used is gone.
fn put_back_one(rocksdb: &RocksDb, former: &Former, known: &[ColumnFamilyPointers]) -> PutBack {
    let family = &former.column_family;
    let is_other = |other: &&ColumnFamilyPointers| {
        other.database == family.database && other.id == family.id && *other != family
    };
    let mut reason = String::new();
    for pointers in std::iter::once(family).chain(known.iter().filter(is_other)) {
        let access = match enter(rocksdb, pointers) {
            Ok(access) => access,
            Err((_, refusal)) => {
                reason = refusal;
                continue;
            }
        };
        // While the pass is out the database stays what it is.
        if !GUARD.is_changed(family.database) {
            return PutBack::Gone;
        }
        let option = [(former.name.clone(), former.value.clone())];
        match rocksdb.set_options(access.handles(), &option) {
            Ok(()) => {
                log::line(&format!("{:?} is {:?} again", former.name, former.value));
                return PutBack::Done;
            }
            Err(Failed::Missing) => return PutBack::Gone,
            Err(Failed::Status(words)) => reason = words,
        }
    }
    if GUARD.is_changed(family.database) { PutBack::Failed(reason) } else { PutBack::Gone }
}

fn unsupported(what: &str) -> Failure {
    (ErrorKind::Unsupported, format!("{what}: this RocksDB does not export the functions"))
}
