//! Counts what a thread allocates, so that a test can hold a decoder to its bound.
#![expect(unsafe_code, reason = "the allocator's interface is unsafe; every call goes to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Runs `work`; returns its result and how many bytes it held at most beyond what was held before.
pub fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = Count::get();
    Count { peak: before.live, ..before }.set();
    let result = work();
    (result, usize::try_from(Count::get().peak - before.live).unwrap_or(0))
}

/// What the thread has allocated and not freed, and how much that was at most; bytes.
#[derive(Clone, Copy)]
pub struct Count {
    live: i64,
    peak: i64,
}

impl Count {
    pub fn get() -> Count {
        Count { live: LIVE.get(), peak: PEAK.get() }
    }

    /// Makes the thread's count this one: whatever else happened since it was got did not count.
    pub fn set(self) {
        LIVE.set(self.live);
        PEAK.set(self.peak);
    }
}

struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: i64) {
    // A thread that is ending has no cells any more; what it frees does not matter.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps alloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
