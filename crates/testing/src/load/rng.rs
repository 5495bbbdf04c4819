//! Repeatable randomness: the same seed gives the same draws on every machine (SplitMix64).

#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// A source of its own for the `n`th of several that share a seed.
    pub fn fork(seed: u64, n: u64) -> Self {
        let mut rng = Rng(seed ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        Rng(rng.draw())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draw() % (end.max(1) as u64)).unwrap_or(0)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_forks_differ() {
        let draw = |mut rng: Rng| (0..4).map(|_| rng.draw()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::new(7)), draw(Rng::new(7)));
        assert_ne!(draw(Rng::fork(7, 0)), draw(Rng::fork(7, 1)));
        let mut rng = Rng::new(1);
        assert!((0..100).all(|_| rng.below(3) < 3));
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
