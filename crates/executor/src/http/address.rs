//! Which addresses are public and which are private. A step's request may contain input from strangers. It must not
//! reach addresses that only this machine can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks that are not the public internet (IANA's special-purpose registry), as (network, prefix length).
const CLOSED_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // With the metadata service of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // A public address by number, but in Azure the way to the host.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

/// Outside of these everything is unassigned or special.
const OPEN_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const CLOSED_V6: &[(Ipv6Addr, u32)] = &[
    // Protocol assignments, with Teredo, benchmarking and ORCHID.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_public_v4(v4),
            None => in_v6(v6, OPEN_V6) && !CLOSED_V6.iter().any(|network| in_v6(v6, *network)),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !CLOSED_V4.iter().any(|(network, length)| {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        address.to_bits() & mask == network.to_bits() & mask
    })
}

fn in_v6(address: Ipv6Addr, (network, length): (Ipv6Addr, u32)) -> bool {
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    address.to_bits() & mask == network.to_bits() & mask
}

/// The IPv4 address that this one leads to: mapped, translated (NAT64) or tunnelled (6to4).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            of(high, low)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_world() {
        for closed in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "3fff::1",
            "5f00::1",
        ] {
            assert!(!is_public(closed.parse().expect("an address")), "{closed}");
        }
    }

    #[test]
    fn what_is_the_world() {
        for open in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "168.63.129.17",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(open.parse().expect("an address")), "{open}");
        }
    }
}
