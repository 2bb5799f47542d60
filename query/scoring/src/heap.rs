//! Heaps as Lucene's `PriorityQueue` keeps them: which of several equals is the least depends on how the heap was made, and
//! with it what is found.

/// Adds an item.
pub(crate) fn push<T>(heap: &mut Vec<T>, item: T, less: impl Fn(&T, &T) -> bool) {
    heap.push(item);
    let mut at = heap.len() - 1;
    while at > 0 {
        let parent = (at - 1) / 2;
        if !less(&heap[at], &heap[parent]) {
            break;
        }
        heap.swap(at, parent);
        at = parent;
    }
}

/// Puts the first item, which has become another, where it belongs.
pub(crate) fn settle<T>(heap: &mut [T], less: impl Fn(&T, &T) -> bool) {
    let mut at = 0;
    loop {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        let before = |a: usize, b: usize| match (heap.get(a), heap.get(b)) {
            (Some(a), Some(b)) => less(a, b),
            _ => false,
        };
        let child = if before(right, left) { right } else { left };
        if !before(child, at) {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}

#[cfg(test)]
mod tests {
    use crate::heap::*;

    #[test]
    fn the_least_comes_first() {
        let mut heap = Vec::new();
        for item in [5, 3, 8, 1, 9, 2, 2, 7] {
            push(&mut heap, item, |a, b| a < b);
        }
        let mut sorted = Vec::new();
        while heap[0] < i32::MAX {
            sorted.push(std::mem::replace(&mut heap[0], i32::MAX));
            settle(&mut heap, |a, b| a < b);
        }
        assert_eq!(sorted, [1, 2, 2, 3, 5, 7, 8, 9]);
    }
}
