//! Tests of every transport's promises.

use bytes::Bytes;
use serac_export::rdma::transport::{Endpoint, Memory, Place, Region, Transfer, Transport, TransportError};
use std::sync::Arc;

/// Two endpoints that are connected to each other.
pub fn pair(transport: &dyn Transport) -> (Arc<dyn Endpoint>, Arc<dyn Endpoint>) {
    let (one, other) = (transport.open().unwrap(), transport.open().unwrap());
    one.connect(&other.address()).unwrap();
    other.connect(&one.address()).unwrap();
    (one, other)
}

/// Bytes that differ.
fn bytes(length: usize) -> Bytes {
    (0..length).map(|i| (i * 31 % 251) as u8).collect::<Vec<u8>>().into()
}

/// Reads a place of the peer.
fn read(endpoint: &dyn Endpoint, remote: Place) -> Result<Vec<u8>, TransportError> {
    let region = Region::new(remote.length as usize).unwrap();
    let local = endpoint.register(Memory::Private(region.clone())).unwrap();
    let transfer = Transfer { local: local.part(0, remote.length).unwrap(), remote };
    let result = endpoint.read(&[transfer]);
    endpoint.revoke(local.key);
    result.map(|()| region.into_buffer().expect("the endpoint has let it go")[..remote.length as usize].to_vec())
}

fn write(endpoint: &dyn Endpoint, source: Bytes, remote: Place) -> Result<(), TransportError> {
    let local = endpoint.register(Memory::Source(source)).unwrap();
    let result = endpoint.write(&[Transfer { local, remote }]);
    endpoint.revoke(local.key);
    result
}

fn is_broken(result: &Result<Vec<u8>, TransportError>) -> bool {
    matches!(result, Err(TransportError::Broken(_)))
}

pub fn reads_and_writes_arrive(transport: &dyn Transport) {
    let (server, client) = pair(transport);
    // Odd lengths, and more work requests than a queue has.
    for length in [1, 63, 4_096, 1_000_003] {
        let lent = bytes(length);
        let place = server.register(Memory::Readable(lent.clone())).unwrap();
        assert_eq!(read(&*client, place).unwrap(), lent, "{length}");
        if length > 100 {
            assert_eq!(read(&*client, place.part(17, 33).unwrap()).unwrap(), lent[17..50]);
        }
        server.revoke(place.key);

        let region = Region::new(length + 10).unwrap();
        let place = client.register(Memory::Writable(region.clone())).unwrap();
        write(&*server, lent.clone(), place.part(10, length as u64).unwrap()).unwrap();
        assert!(region.clone().into_buffer().is_none(), "it is registered");
        client.revoke(place.key);
        let written = region.into_buffer().unwrap();
        assert_eq!((&written[..10], &written[10..10 + length]), (&[0; 10][..], &lent[..]));
    }
    let lent = bytes(300 * 64);
    let place = server.register(Memory::Readable(lent.clone())).unwrap();
    let region = Region::new(lent.len()).unwrap();
    let local = client.register(Memory::Private(region.clone())).unwrap();
    let part = |place: Place, i: u64| place.part(i * 64, 64).unwrap();
    let transfers: Vec<_> =
        (0..300).map(|i| Transfer { local: part(local, 299 - i), remote: part(place, i) }).collect();
    client.read(&transfers).unwrap();
    client.revoke(local.key);
    let read = region.into_buffer().unwrap();
    for (part, lent) in read[..lent.len()].chunks(64).rev().zip(lent.chunks(64)) {
        assert_eq!(part, lent);
    }
}

pub fn what_is_not_open_is_refused_and_breaks_the_connection(transport: &dyn Transport) {
    let lent = bytes(8_192);
    let cases = [
        "another key",
        "no key",
        "before",
        "behind",
        "too long",
        "elsewhere",
        "a source",
        "write to what is lent",
        "read what is written to",
    ];
    for case in cases {
        let (server, client) = pair(transport);
        let place = server.register(Memory::Readable(lent.clone())).unwrap();
        assert_eq!(read(&*client, place).unwrap(), lent, "{case}");
        let region = Region::new(8_192).unwrap();
        let result = match case {
            "another key" => read(&*client, Place { key: place.key ^ 0x5500, ..place }),
            "no key" => read(&*client, Place { key: 0, ..place }),
            "before" => read(&*client, Place { address: place.address - 1, ..place }),
            "behind" => read(&*client, Place { address: place.address + 1, ..place }),
            "too long" => read(&*client, Place { length: place.length + 1, ..place }),
            "elsewhere" => read(&*client, Place { address: lent.as_ptr() as u64 ^ 1 << 46, length: 8, ..place }),
            "a source" => {
                let source = server.register(Memory::Source(lent.clone())).unwrap();
                read(&*client, source)
            }
            "write to what is lent" => write(&*client, bytes(8_192), place).map(|()| Vec::new()),
            _ => {
                let writable = server.register(Memory::Writable(region.clone())).unwrap();
                read(&*client, writable)
            }
        };
        assert_eq!(result, Err(TransportError::Refused), "{case}");
        assert_eq!(lent, bytes(8_192), "{case}");
        let again = read(&*client, place);
        assert!(is_broken(&again), "{case}: {again:?}");
    }
}

pub fn a_revoked_key_opens_nothing(transport: &dyn Transport) {
    let (server, client) = pair(transport);
    let place = server.register(Memory::Readable(bytes(100_000))).unwrap();
    assert_eq!(read(&*client, place).unwrap(), bytes(100_000));
    server.revoke(place.key);
    assert_eq!(read(&*client, place), Err(TransportError::Refused));

    // A server's late write does not arrive.
    let (server, client) = pair(transport);
    let region = Region::new(4_096).unwrap();
    let place = client.register(Memory::Writable(region.clone())).unwrap();
    client.revoke(place.key);
    assert_eq!(write(&*server, bytes(4_096), place), Err(TransportError::Refused));
    assert!(region.into_buffer().unwrap().iter().all(|byte| *byte == 0));

    // A closed connection opens nothing, though its keys are there.
    let (server, client) = pair(transport);
    let place = server.register(Memory::Readable(bytes(100))).unwrap();
    server.close();
    let closed = read(&*client, place);
    assert!(is_broken(&closed), "{closed:?}");
}

pub fn a_key_opens_nothing_to_another_peer(transport: &dyn Transport) {
    let (server, client) = pair(transport);
    let (_other_server, other_client) = pair(transport);
    let place = server.register(Memory::Readable(bytes(100_000))).unwrap();
    assert_eq!(read(&*other_client, place), Err(TransportError::Refused));
    assert_eq!(read(&*client, place).unwrap(), bytes(100_000));
}

/// A client reads all the time while keys are revoked: it gets all bytes or an error.
pub fn revocation_beside_reads(transport: &dyn Transport) {
    // Before, in and after the first reads, fast or slow.
    for milliseconds in [0, 1, 2, 4, 8, 30, 100] {
        let (server, client) = pair(transport);
        let place = server.register(Memory::Readable(bytes(200_000))).unwrap();
        let reader = std::thread::spawn(move || {
            for count in 0.. {
                match read(&*client, place) {
                    Ok(read) => assert_eq!(read, bytes(200_000)),
                    Err(error) => return (count, error),
                }
            }
            unreachable!()
        });
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        server.revoke(place.key);
        let (count, error) = reader.join().unwrap();
        // A device that loses its peer's answer gives up after a time.
        let is_end = matches!(error, TransportError::Refused | TransportError::Broken(_));
        assert!(is_end, "after {count} reads: {error}");
    }
}

pub fn wrong_use_is_an_error_and_breaks_nothing(transport: &dyn Transport) {
    let (server, client) = pair(transport);
    let invalid = |result: Result<(), TransportError>| assert!(matches!(result, Err(TransportError::Invalid(_))));
    let lent = server.register(Memory::Readable(bytes(1_000))).unwrap();
    let region = Region::new(1_000).unwrap();
    let local = client.register(Memory::Private(region)).unwrap();
    let own = client.register(Memory::Source(bytes(1_000))).unwrap();
    let read = |local: Place, remote: Place| client.read(&[Transfer { local, remote }]);
    let part = |place: Place, at: u64| place.part(at, 10).unwrap();
    invalid(read(local.part(0, 1_000).unwrap(), part(lent, 0)));
    invalid(read(Place { key: local.key ^ 0x5500, ..part(local, 0) }, part(lent, 0)));
    invalid(read(Place { address: local.address + 4_091, ..part(local, 0) }, part(lent, 0)));
    invalid(read(part(own, 0), part(lent, 0)));
    assert!(matches!(client.register(Memory::Source(Bytes::new())), Err(TransportError::Invalid(_))));
    // Only once, and only to a possible address.
    invalid(client.connect(&server.address()));
    for address in [&[][..], &[1; 7], &[255; 29], &[0; 256], &[1, 0, 0, 0]] {
        invalid(transport.open().unwrap().connect(address));
    }
    let alone = transport.open().unwrap();
    let region = Region::new(10).unwrap();
    let place = alone.register(Memory::Private(region)).unwrap();
    let unconnected = alone.read(&[Transfer { local: place.part(0, 10).unwrap(), remote: part(lent, 0) }]);
    assert!(matches!(unconnected, Err(TransportError::Broken(_))));
    read(part(local, 0), part(lent, 0)).unwrap();
}

/// A test, with its name.
type Test = (&'static str, fn(&dyn Transport));

pub fn all(transport: &dyn Transport) {
    let tests: [Test; 6] = [
        ("reads and writes arrive", reads_and_writes_arrive),
        ("what is not open is refused", what_is_not_open_is_refused_and_breaks_the_connection),
        ("a revoked key opens nothing", a_revoked_key_opens_nothing),
        ("a key opens nothing to another peer", a_key_opens_nothing_to_another_peer),
        ("revocation beside reads", revocation_beside_reads),
        ("wrong use breaks nothing", wrong_use_is_an_error_and_breaks_nothing),
    ];
    for (name, test) in tests {
        println!("{}: {name}", transport.name());
        test(transport);
    }
}
