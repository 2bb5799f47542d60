//! `_cat/nodes`, `_cat/master`, `_cat/allocation`, `_cat/plugins`, `_cat/nodeattrs`.

use super::super::process::{FileSystem, Machine, Process, percent};
use super::super::{node, nodes, options, stats};
use super::table::{Cell, Column, Format, Table, column};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

const NODES: &[Column] = &[
    column("id", "id,nodeId", "unique node id").on_request(),
    column("pid", "p", "process id").right().on_request(),
    column("ip", "i", "ip address"),
    column("port", "po", "bound port of the data API").right().on_request(),
    column("http_address", "http", "bound http address").on_request(),
    column("version", "v", "version of the data API").on_request(),
    column("flavor", "f", "distribution flavor").on_request(),
    column("type", "t", "distribution type").on_request(),
    column("build", "b", "build hash").on_request(),
    column("disk.total", "dt,diskTotal", "total disk space").right().on_request(),
    column("disk.used", "du,diskUsed", "used disk space").right().on_request(),
    column("disk.avail", "d,da,disk,diskAvail", "available disk space").right().on_request(),
    column("disk.used_percent", "dup,diskUsedPercent", "used disk space percentage").right().on_request(),
    column("heap.current", "hc,heapCurrent", "memory that the process allocated").right().on_request(),
    column("heap.percent", "hp,heapPercent", "the same as a share of the machine's").right(),
    column("heap.max", "hm,heapMax", "memory of the machine").right().on_request(),
    column("ram.current", "rc,ramCurrent", "used machine memory").right().on_request(),
    column("ram.percent", "rp,ramPercent", "used machine memory ratio").right(),
    column("ram.max", "rm,ramMax", "total machine memory").right().on_request(),
    column("file_desc.current", "fdc,fileDescriptorCurrent", "used file descriptors").right().on_request(),
    column("file_desc.percent", "fdp,fileDescriptorPercent", "used file descriptor ratio")
        .right()
        .on_request(),
    column("file_desc.max", "fdm,fileDescriptorMax", "max file descriptors").right().on_request(),
    column("cpu", "cpu", "share of all processors used since start").right(),
    column("load_1m", "l", "1m load avg").right(),
    column("load_5m", "l", "5m load avg").right(),
    column("load_15m", "l", "15m load avg").right(),
    column("uptime", "u", "node uptime").right().on_request(),
    column("node.role", "r,role,nodeRole", "m: manager eligible, d: data, i: ingest, r: remote client"),
    column("master", "m", "*: current cluster manager"),
    column("name", "n", "node name"),
];

pub(crate) fn get(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::flag(&mut request.params, "full_id")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let (process, machine) = (Process::read(), Machine::read());
    let disk = FileSystem::read(&api.identity.data_dir);
    let disk_used = disk.total.saturating_sub(disk.available);
    let load = |at: usize| machine.load.map_or(Cell::Empty, |load| Cell::Decimal(load[at]));
    let port = node::address(api).rsplit_once(':').map_or("", |(_, port)| port);
    let mut table = Table::new(NODES);
    table.push(vec![
        node::id(api).into(),
        process.id.into(),
        node::ip(api).into(),
        port.into(),
        node::address(api).into(),
        node::VERSION.into(),
        "default".into(),
        "tar".into(),
        concat!("millrace-", env!("CARGO_PKG_VERSION")).into(),
        Cell::Bytes(disk.total),
        Cell::Bytes(disk_used),
        Cell::Bytes(disk.available),
        percent(disk_used, disk.total).into(),
        Cell::Bytes(process.anonymous),
        percent(process.anonymous, machine.memory_total).into(),
        Cell::Bytes(machine.memory_total),
        Cell::Bytes(machine.memory_used()),
        percent(machine.memory_used(), machine.memory_total).into(),
        Cell::Bytes(machine.memory_total),
        process.open_files.into(),
        process.max_files.map_or(0, |limit| percent(process.open_files, limit)).into(),
        process.max_files.map_or(Cell::Number(-1), Cell::from),
        nodes::cpu_percent(&process, &machine).into(),
        load(0),
        load(1),
        load(2),
        Cell::Millis(process.uptime_ms),
        node::ROLE_LETTERS.into(),
        "*".into(),
        api.identity.node.as_str().into(),
    ]);
    table.render(&format)
}

const MASTER: &[Column] = &[
    column("id", "", "node id"),
    column("host", "h", "host name"),
    column("ip", "", "ip address"),
    column("node", "n", "node name"),
];

pub(crate) fn master(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(MASTER);
    table.push(vec![
        node::id(api).into(),
        node::ip(api).into(),
        node::ip(api).into(),
        api.identity.node.as_str().into(),
    ]);
    table.render(&format)
}

const ALLOCATION: &[Column] = &[
    column("shards", "s", "number of shards on node").right(),
    column("disk.indices", "di,diskIndices", "disk used by indices").right(),
    column("disk.used", "du,diskUsed", "disk used (total, not just indices)").right(),
    column("disk.avail", "da,diskAvail", "disk available").right(),
    column("disk.total", "dt,diskTotal", "total capacity of all volumes").right(),
    column("disk.percent", "dp,diskPercent", "percent disk used").right(),
    column("host", "h", "host of node"),
    column("ip", "", "ip of node"),
    column("node", "n", "name of node"),
];

pub(crate) fn allocation(api: &Api, request: &mut Request, filter: &str) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(ALLOCATION);
    if node::selected(api, filter) {
        let state = api.session.metadata();
        let shards: u64 = state.indices().map(|meta| u64::from(meta.shards)).sum();
        let figures: Vec<_> = state.indices().flat_map(|meta| stats::figures(api, meta)).collect();
        let disk = FileSystem::read(&api.identity.data_dir);
        let used = disk.total.saturating_sub(disk.available);
        table.push(vec![
            shards.into(),
            Cell::Bytes(stats::sum(&figures).store_bytes),
            Cell::Bytes(used),
            Cell::Bytes(disk.available),
            Cell::Bytes(disk.total),
            percent(used, disk.total).into(),
            node::ip(api).into(),
            node::ip(api).into(),
            api.identity.node.as_str().into(),
        ]);
    }
    table.render(&format)
}

const PLUGINS: &[Column] = &[
    column("id", "", "unique node id").on_request(),
    column("name", "n", "node name"),
    column("component", "c", "component"),
    column("version", "v", "component version"),
    column("description", "d", "plugin details").on_request(),
];

pub(crate) fn plugins(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut table = Table::new(PLUGINS);
    for (name, description) in node::PLUGINS {
        table.push(vec![
            node::id(api).into(),
            api.identity.node.as_str().into(),
            name.into(),
            format!("{}.0", node::VERSION).into(),
            description.into(),
        ]);
    }
    table.render(&format)
}

const ATTRIBUTES: &[Column] = &[
    column("node", "name", "node name"),
    column("id", "id,nodeId", "unique node id").on_request(),
    column("pid", "p", "process id").on_request(),
    column("host", "h", "host name"),
    column("ip", "i", "ip address"),
    column("port", "po", "bound port").on_request(),
    column("attr", "attr.name", "attribute description"),
    column("value", "attr.value", "attribute value"),
];

/// `_cat/nodeattrs`: a node has no attributes of its own.
pub(crate) fn attributes(request: &mut Request) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    Table::new(ATTRIBUTES).render(&format)
}
