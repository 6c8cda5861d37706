//! A range of addresses, as an interface or an operator's rule has it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits. IPv4 addresses in IPv6 clothes count as IPv4.
///
/// Invariant: bits behind the prefix are 0; the prefix fits the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    /// How many bits are the same, 0 to 32 or 128.
    prefix: u8,
}

impl Network {
    /// The network of `prefix` bits that `address` lies in; `None` if the family has not so many bits.
    pub fn of(address: IpAddr, prefix: u8) -> Option<Network> {
        let address = address.to_canonical();
        let masked = match address {
            IpAddr::V4(v4) if prefix <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::from((u32::from(v4) & mask).to_be_bytes())
            }
            IpAddr::V6(v6) if prefix <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::from((u128::from(v6) & mask).to_be_bytes())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        Some(Network { address: masked, prefix })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        Network::of(address, self.prefix) == Some(*self)
    }

    /// Bits that are the same: of two networks that contain an address, the longer one means it more.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    /// # Errors
    /// A text that is not address/bits, or an address with bits behind the prefix: a network that is not the one meant.
    fn from_str(text: &str) -> Result<Network, String> {
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let address: IpAddr = address.parse().ok()?;
            Some((address, Network::of(address, prefix.parse().ok()?)?))
        });
        match parsed {
            Some((address, network)) if network.address == address.to_canonical() => Ok(network),
            Some((_, network)) => Err(format!("'{text}' has bits behind its prefix; did you mean {network}?")),
            None => Err(format!("'{text}' is not a network such as 10.0.0.0/8 or fd00::/8")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_network_is_read_as_it_is_written_and_nothing_else_is() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.168.1.7/32", "fd00::/8", "::/0", "::1/128"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "a/8", "/8", "10.0.0.0/256"] {
            assert!(text.parse::<Network>().unwrap_err().contains("10.0.0.0/8"), "{text}");
        }
        assert!("10.1.2.3/8".parse::<Network>().unwrap_err().contains("did you mean 10.0.0.0/8?"));
    }

    #[test]
    fn families_are_not_mixed_up_but_mapped_addresses_are_their_own() {
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!all.contains("fd00::1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn an_address_is_in_its_own_network_and_the_other_half_is_not(bits: u32, prefix in 1u8..=32) {
            let address = IpAddr::from(bits.to_be_bytes());
            let network = Network::of(address, prefix).unwrap();
            prop_assert!(network.contains(address));
            let flipped = IpAddr::from((bits ^ (1 << (32 - prefix))).to_be_bytes());
            prop_assert!(!network.contains(flipped));
        }
    }
}
