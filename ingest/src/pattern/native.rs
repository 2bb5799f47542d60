//! The binding to PCRE2: compiled code, places where a match writes what it found, and what each thread needs to match.
//!
//! All that is unsafe about regular expressions is here. Compiled code is counted in bytes and in number over the whole
//! process, for what a definition or an event asks for has no other bound.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use pcre2_sys as pcre2;

use super::Deadline;

/// Most bytes of one compiled expression.
const MAX_CODE_BYTES: usize = 16 << 20;
/// Most bytes of all compiled expressions.
const MAX_ALL_BYTES: usize = 512 << 20;
/// Most compiled expressions.
const MAX_CODES: usize = 20_000;
/// First and largest size of a thread's stack for compiled code, in bytes.
const STACK_BYTES: (usize, usize) = (32 << 10, 4 << 20);
/// Most memory of the interpreter, which matches where no machine code can be made, in KiB.
const HEAP_KIB: u32 = 8 << 10;
/// Bytes that are surely looked at between two looks at the clock.
const BYTES_PER_LOOK: usize = 1 << 20;
/// Most callouts between two looks at the clock.
const MAX_STRIDE: usize = 64;

/// Largest stack for compiled code that one match may have where a thread's own does not do, and all of them, in bytes. Memory is
/// taken only as far as a match goes.
const LARGE_STACK_BYTES: (usize, usize) = (256 << 20, 512 << 20);
/// Bytes of such a stack for each byte of the text.
const STACK_PER_BYTE: usize = 256;
/// The error of PCRE2 for expressions that are larger than 64 KiB when they are compiled.
const PATTERN_TOO_LARGE: c_int = 120;

type Callout = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

// `pcre2-sys` leaves it out.
unsafe extern "C" {
    fn pcre2_set_callout_8(
        context: *mut pcre2::pcre2_match_context_8,
        callout: Option<Callout>,
        data: *mut c_void,
    ) -> c_int;
}

/// End of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchEnd {
    Found,
    Nothing,
    /// The steps that one place was given are used up.
    OutOfSteps,
    /// The time is over, or there is no more memory.
    Stopped,
}

/// Compilation mode of the expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// `true` if groups without a name do not capture.
    pub(super) named: bool,
    /// `true` if each part of the expression looks at the clock.
    pub(super) watched: bool,
    /// `true` if `.` matches ends of lines.
    pub(super) dot_all: bool,
}

/// Why an expression is not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CompileError {
    /// It is larger than compiled code may be; in another form it may be smaller.
    TooLarge(String),
    Other(String),
}

impl CompileError {
    pub(super) fn into_message(self) -> String {
        let (Self::TooLarge(message) | Self::Other(message)) = self;
        message
    }
}

/// A compiled expression.
pub(super) struct Code {
    code: NonNull<pcre2::pcre2_code_8>,
    bytes: usize,
}

// SAFETY: compiled code is not changed once it is made, and may be used by several threads at once (pcre2api, "Multithreading").
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Code {
    /// Compiles an expression in the syntax of PCRE2.
    ///
    /// # Errors
    /// What is wrong with it, or that there are too many.
    pub(super) fn compile(expression: &str, mode: Mode) -> Result<Self, CompileError> {
        let mut options = pcre2::PCRE2_UTF | pcre2::PCRE2_MULTILINE | pcre2::PCRE2_USE_OFFSET_LIMIT;
        if mode.named {
            options |= pcre2::PCRE2_NO_AUTO_CAPTURE;
        }
        if mode.watched {
            options |= pcre2::PCRE2_AUTO_CALLOUT;
        }
        if mode.dot_all {
            options |= pcre2::PCRE2_DOTALL;
        }
        let (mut error, mut offset) = (0, 0);
        // SAFETY: the expression lives through the call, and its length is given; null stands for the default context.
        let code = unsafe {
            pcre2::pcre2_compile_8(
                expression.as_ptr(),
                expression.len(),
                options,
                &mut error,
                &mut offset,
                ptr::null_mut(),
            )
        };
        let code = NonNull::new(code).ok_or_else(|| {
            let before = expression.get(..offset).unwrap_or(expression);
            let message = format!("{} behind [{}]", message(error), tail(before));
            match error {
                PATTERN_TOO_LARGE => CompileError::TooLarge(message),
                _ => CompileError::Other(message),
            }
        })?;
        let mut code = Self { code, bytes: 0 };
        // SAFETY: the code was just made and nobody else has it. Where no machine code can be made, it is interpreted.
        unsafe { pcre2::pcre2_jit_compile_8(code.code.as_ptr(), pcre2::PCRE2_JIT_COMPLETE) };
        let bytes = code.info(pcre2::PCRE2_INFO_SIZE) + code.info(pcre2::PCRE2_INFO_JITSIZE);
        COMPILED.take(bytes)?;
        code.bytes = bytes;
        Ok(code)
    }

    fn info(&self, what: u32) -> usize {
        let mut value = 0_usize;
        // SAFETY: what is asked for is written as a size.
        let failed = unsafe {
            pcre2::pcre2_pattern_info_8(self.code.as_ptr(), what, ptr::from_mut(&mut value).cast::<c_void>())
        };
        if failed == 0 { value } else { 0 }
    }

    /// Searches a text for a match that begins in a range of places, of which the first is at a character; each place is
    /// given so many steps; a watched expression looks at the deadline.
    pub(super) fn search(
        &self,
        locations: &mut Locations,
        text: &str,
        places: Range<usize>,
        steps: u32,
        deadline: Option<&Deadline>,
    ) -> MatchEnd {
        assert!(text.is_char_boundary(places.start), "a match begins at a character");
        let stride = (BYTES_PER_LOOK / text.len().max(1)).clamp(1, MAX_STRIDE);
        let mut watch = deadline.map(|deadline| Watch { deadline, calls: 0, stride });
        let run = |machine: &Machine, watch: &mut Option<Watch<'_>>| {
            let context = machine.context.as_ptr();
            // SAFETY: the context is this thread's alone, and the callout is taken out again before what it looks at ends. The
            // text is UTF-8 as it is a `str`, and the first place is at a character. The locations were made for this code.
            unsafe {
                pcre2::pcre2_set_match_limit_8(context, steps);
                pcre2::pcre2_set_offset_limit_8(context, places.end.saturating_sub(1));
                if let Some(watch) = watch {
                    pcre2_set_callout_8(context, Some(check_deadline), ptr::from_mut(watch).cast::<c_void>());
                }
                let result = pcre2::pcre2_match_8(
                    self.code.as_ptr(),
                    text.as_ptr(),
                    text.len(),
                    places.start,
                    pcre2::PCRE2_NO_UTF_CHECK,
                    locations.0.as_ptr(),
                    context,
                );
                if watch.is_some() {
                    pcre2_set_callout_8(context, None, ptr::null_mut());
                }
                result
            }
        };
        let result = MACHINE.with_borrow(|machine| {
            let result = run(machine, &mut watch);
            if !matches!(result, pcre2::PCRE2_ERROR_JIT_STACKLIMIT | pcre2::PCRE2_ERROR_HEAPLIMIT) {
                return result;
            }
            match LargeStack::for_text(machine, text.len()) {
                Some(_stack) => run(machine, &mut watch),
                None => result,
            }
        });
        match result {
            1.. => MatchEnd::Found,
            pcre2::PCRE2_ERROR_NOMATCH => MatchEnd::Nothing,
            pcre2::PCRE2_ERROR_MATCHLIMIT => MatchEnd::OutOfSteps,
            other => {
                debug_assert!(
                    [
                        pcre2::PCRE2_ERROR_CALLOUT,
                        pcre2::PCRE2_ERROR_JIT_STACKLIMIT,
                        pcre2::PCRE2_ERROR_HEAPLIMIT,
                        pcre2::PCRE2_ERROR_DEPTHLIMIT,
                        pcre2::PCRE2_ERROR_RECURSELOOP,
                    ]
                    .contains(&other),
                    "{}",
                    message(other)
                );
                MatchEnd::Stopped
            }
        }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: nobody else has the code.
        unsafe { pcre2::pcre2_code_free_8(self.code.as_ptr()) };
        if self.bytes > 0 {
            COMPILED.give_back(self.bytes);
        }
    }
}

/// Buffer in which a match of one expression records its groups.
pub(super) struct Locations(NonNull<pcre2::pcre2_match_data_8>);

// SAFETY: nothing in it belongs to a thread; it is written only by who has it for himself.
unsafe impl Send for Locations {}

impl Locations {
    pub(super) fn new(code: &Code) -> Self {
        // SAFETY: the code lives through the call.
        let data =
            unsafe { pcre2::pcre2_match_data_create_from_pattern_8(code.code.as_ptr(), ptr::null_mut()) };
        Self(NonNull::new(data).expect("memory for the groups of an expression"))
    }

    /// Returns the number of groups, the match itself included.
    pub(super) fn groups(&self) -> usize {
        // SAFETY: the data lives as long as this.
        let groups = unsafe { pcre2::pcre2_get_ovector_count_8(self.0.as_ptr()) };
        usize::try_from(groups).unwrap_or(0)
    }

    /// Returns the range of a group; `None` where it took no part or there is none.
    pub(super) fn get(&self, group: usize) -> Option<Range<usize>> {
        // SAFETY: the vector has two numbers for each of the groups that are counted, and lives as long as the data.
        let (start, end) = unsafe {
            let groups = pcre2::pcre2_get_ovector_count_8(self.0.as_ptr());
            if group >= usize::try_from(groups).unwrap_or(0) {
                return None;
            }
            let vector = pcre2::pcre2_get_ovector_pointer_8(self.0.as_ptr());
            (*vector.add(2 * group), *vector.add(2 * group + 1))
        };
        // A group in a look-behind can end before it begins.
        (start != usize::MAX && start <= end).then_some(start..end)
    }
}

impl Drop for Locations {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { pcre2::pcre2_match_data_free_8(self.0.as_ptr()) };
    }
}

/// Watch of a running match.
struct Watch<'a> {
    deadline: &'a Deadline,
    calls: usize,
    stride: usize,
}

/// Called before each part of a watched expression, each time that it is tried.
unsafe extern "C" fn check_deadline(_block: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: `Code::search` sets it for the time of the match, and nobody else uses it meanwhile.
    let watch = unsafe { &mut *data.cast::<Watch<'_>>() };
    watch.calls += 1;
    if watch.calls.is_multiple_of(watch.stride) && watch.deadline.is_over() {
        pcre2::PCRE2_ERROR_CALLOUT
    } else {
        0
    }
}

/// Matching state of a thread, for any expression.
struct Machine {
    context: NonNull<pcre2::pcre2_match_context_8>,
    stack: *mut pcre2::pcre2_jit_stack_8,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new());
}

impl Machine {
    fn new() -> Self {
        let (first, largest) = STACK_BYTES;
        // SAFETY: null stands for the default allocator; the stack lives as long as the context that it is given to. Without a
        // stack (null), compiled code uses 32 KiB of the thread's own.
        unsafe {
            let context = NonNull::new(pcre2::pcre2_match_context_create_8(ptr::null_mut()))
                .expect("memory for the context of matches");
            let stack = pcre2::pcre2_jit_stack_create_8(first, largest, ptr::null_mut());
            pcre2::pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.cast::<c_void>());
            pcre2::pcre2_set_heap_limit_8(context.as_ptr(), HEAP_KIB);
            Self { context, stack }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the thread ends; nobody else has them.
        unsafe {
            pcre2::pcre2_match_context_free_8(self.context.as_ptr());
            pcre2::pcre2_jit_stack_free_8(self.stack);
        }
    }
}

/// A larger stack for the matches of a thread, for as long as there is this: one group that is repeated takes some of it each time.
struct LargeStack<'a> {
    machine: &'a Machine,
    stack: *mut pcre2::pcre2_jit_stack_8,
    bytes: usize,
}

/// Bytes of all larger stacks.
static LARGE_STACKS: AtomicUsize = AtomicUsize::new(0);

impl<'a> LargeStack<'a> {
    /// Makes one for a text of so many bytes; `None` while there are too many, or if the system has no memory.
    fn for_text(machine: &'a Machine, length: usize) -> Option<Self> {
        let (largest, all) = LARGE_STACK_BYTES;
        let bytes = length.saturating_mul(STACK_PER_BYTE).clamp(2 * STACK_BYTES.1, largest);
        let take = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= all);
        LARGE_STACKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        // SAFETY: null stands for the default allocator; the stack is assigned until the drop, which frees it. The context is this thread's alone.
        let stack = unsafe {
            let stack = pcre2::pcre2_jit_stack_create_8(STACK_BYTES.1, bytes, ptr::null_mut());
            if !stack.is_null() {
                pcre2::pcre2_jit_stack_assign_8(machine.context.as_ptr(), None, stack.cast::<c_void>());
                pcre2::pcre2_set_heap_limit_8(
                    machine.context.as_ptr(),
                    u32::try_from(bytes >> 10).unwrap_or(HEAP_KIB),
                );
            }
            stack
        };
        let large = Self { machine, stack, bytes };
        (!stack.is_null()).then_some(large)
    }
}

impl Drop for LargeStack<'_> {
    fn drop(&mut self) {
        LARGE_STACKS.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.stack.is_null() {
            return;
        }
        // SAFETY: no match runs on this thread; its own stack lives as long as the context.
        unsafe {
            let context = self.machine.context.as_ptr();
            pcre2::pcre2_jit_stack_assign_8(context, None, self.machine.stack.cast::<c_void>());
            pcre2::pcre2_set_heap_limit_8(context, HEAP_KIB);
            pcre2::pcre2_jit_stack_free_8(self.stack);
        }
    }
}

/// All compiled expressions of the process.
static COMPILED: CompiledCount = CompiledCount { bytes: AtomicUsize::new(0), codes: AtomicUsize::new(0) };

/// Counts compiled expressions.
struct CompiledCount {
    bytes: AtomicUsize,
    codes: AtomicUsize,
}

impl CompiledCount {
    fn take(&self, bytes: usize) -> Result<(), CompileError> {
        if bytes > MAX_CODE_BYTES {
            return Err(CompileError::TooLarge(format!(
                "it takes {bytes} bytes when it is compiled, more than {MAX_CODE_BYTES}"
            )));
        }
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let codes = self.codes.fetch_add(1, Ordering::Relaxed) + 1;
        if all > MAX_ALL_BYTES || codes > MAX_CODES {
            self.give_back(bytes);
            return Err(CompileError::Other(format!(
                "all pipelines together have more than {MAX_CODES} compiled expressions, or such as take more than \
                 {MAX_ALL_BYTES} bytes; remove some patterns"
            )));
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.codes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// PCRE2's text for one of its errors.
fn message(error: c_int) -> String {
    let mut text = [0_u8; 256];
    // SAFETY: the length is that of the buffer; what does not fit is cut.
    let length = unsafe { pcre2::pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    let text = usize::try_from(length).ok().and_then(|length| text.get(..length)).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The last characters of a text.
fn tail(text: &str) -> &str {
    const SHOWN: usize = 40;
    let at = text.char_indices().rev().nth(SHOWN - 1).map_or(0, |(at, _)| at);
    text.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_is_bounded() {
        let compiled = CompiledCount { bytes: AtomicUsize::new(0), codes: AtomicUsize::new(0) };
        assert!(compiled.take(MAX_CODE_BYTES + 1).is_err());
        for _ in 0..MAX_ALL_BYTES / MAX_CODE_BYTES {
            compiled.take(MAX_CODE_BYTES).unwrap();
        }
        assert!(compiled.take(1).unwrap_err().into_message().contains("remove some patterns"));
        compiled.give_back(MAX_CODE_BYTES);
        compiled.take(1).unwrap();
        let compiled = CompiledCount { bytes: AtomicUsize::new(0), codes: AtomicUsize::new(MAX_CODES - 1) };
        compiled.take(1).unwrap();
        assert!(compiled.take(1).is_err());
    }
}
