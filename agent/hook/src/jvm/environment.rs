//! What a thread that the machine knows may ask of objects: their classes, fields and methods by name.
//!
//! Each call that can throw is followed by a look at whether it has; a pending exception would make every
//! further call undefined. It becomes an error with the name of what was asked for.

use crate::access::Failure;
use jni_sys::{JNIEnv, JNINativeInterface__1_2, jclass, jfieldID, jlong, jmethodID, jobject, jsize, jvalue};
use sexton_hook_protocol::ErrorKind;
use std::ffi::CStr;
use std::marker::PhantomData;

/// Bytes of a string that are taken, in the machine's UTF-8: names of classes and threads.
const STRING_BYTES_MAX: usize = 512;

/// Local references that one [`Environment::frame`] has room for from the start.
const FRAME_REFERENCES: i32 = 16;

/// The machine's functions, for the thread that it was made for.
pub struct Environment {
    raw: *mut JNIEnv,
}

/// A reference to an object, which the garbage collector leaves alone for as long as its frame lasts.
#[derive(Clone, Copy)]
pub struct Object<'frame> {
    raw: jobject,
    frame: PhantomData<&'frame Environment>,
}

fn failed(what: &CStr) -> Failure {
    (ErrorKind::Failed, format!("the Java virtual machine refuses {}", what.to_string_lossy()))
}

impl Environment {
    /// # Safety
    /// The machine has given `raw` to this thread, and the thread stays attached for as long as this is used.
    pub unsafe fn new(raw: *mut JNIEnv) -> Environment {
        Environment { raw }
    }

    fn functions(&self) -> &JNINativeInterface__1_2 {
        // SAFETY: the table that the machine has filled in, of at least JNI 1.6, for as long as it exists.
        unsafe { &(**self.raw).v1_2 }
    }

    /// Whether an exception was pending, which it is no more.
    fn has_thrown(&self) -> bool {
        let functions = self.functions();
        // SAFETY: both may be called at any time by the thread that the environment is of.
        unsafe {
            let is_pending = (functions.ExceptionCheck)(self.raw);
            if is_pending {
                (functions.ExceptionClear)(self.raw);
            }
            is_pending
        }
    }

    /// What a call has given, unless it has thrown.
    fn checked<T>(&self, value: T, what: &CStr) -> Result<T, Failure> {
        if self.has_thrown() { Err(failed(what)) } else { Ok(value) }
    }

    fn object(&self, raw: jobject) -> Option<Object<'_>> {
        (!raw.is_null()).then_some(Object { raw, frame: PhantomData })
    }

    /// Runs `body`; the references that it takes are given back.
    pub fn frame<T>(&self, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let functions = self.functions();
        // SAFETY: no exception is pending.
        if unsafe { (functions.PushLocalFrame)(self.raw, FRAME_REFERENCES) } != 0 {
            self.has_thrown();
            return Err(failed(c"room for references"));
        }
        let result = body();
        // SAFETY: the frame that was pushed above; none of its references leaves `body`, whose result is no
        // reference.
        unsafe { (functions.PopLocalFrame)(self.raw, std::ptr::null_mut()) };
        result
    }

    /// A class that every class loader has: `java/lang/Thread`.
    pub fn class(&self, name: &CStr) -> Result<Object<'_>, Failure> {
        // SAFETY: a name that ends with NUL.
        let raw = unsafe { (self.functions().FindClass)(self.raw, name.as_ptr()) };
        self.checked(raw, name)?;
        self.object(raw).ok_or_else(|| failed(name))
    }

    /// The class of an object.
    pub fn class_of(&self, object: Object<'_>) -> Result<Object<'_>, Failure> {
        // SAFETY: an object that is not null.
        let raw: jclass = unsafe { (self.functions().GetObjectClass)(self.raw, object.raw) };
        self.object(raw).ok_or_else(|| failed(c"an object's class"))
    }

    /// What a field of an object refers to; `None` where it is null, or the object has no such field.
    pub fn field(
        &self,
        object: Object<'_>,
        name: &CStr,
        signature: &CStr,
    ) -> Result<Option<Object<'_>>, Failure> {
        let class = self.class_of(object)?;
        // SAFETY: a class, and names that end with NUL.
        let id: jfieldID =
            unsafe { (self.functions().GetFieldID)(self.raw, class.raw, name.as_ptr(), signature.as_ptr()) };
        if self.has_thrown() || id.is_null() {
            return Ok(None);
        }
        // SAFETY: a field of the object's class, which refers to an object.
        let raw = unsafe { (self.functions().GetObjectField)(self.raw, object.raw, id) };
        Ok(self.object(raw))
    }

    fn method(&self, object: Object<'_>, name: &CStr, signature: &CStr) -> Result<jmethodID, Failure> {
        let class = self.class_of(object)?;
        // SAFETY: a class, and names that end with NUL.
        let id =
            unsafe { (self.functions().GetMethodID)(self.raw, class.raw, name.as_ptr(), signature.as_ptr()) };
        self.checked(id, name)
    }

    /// Calls a method without arguments that gives an object; `None` where it is null.
    pub fn call(
        &self,
        object: Object<'_>,
        name: &CStr,
        signature: &CStr,
    ) -> Result<Option<Object<'_>>, Failure> {
        let id = self.method(object, name, signature)?;
        // SAFETY: a method of the object's class that takes nothing and gives an object, by its signature.
        let raw = unsafe { (self.functions().CallObjectMethodA)(self.raw, object.raw, id, std::ptr::null()) };
        self.checked(raw, name)?;
        Ok(self.object(raw))
    }

    /// The same of a class, without an object.
    pub fn call_static(
        &self,
        class: Object<'_>,
        name: &CStr,
        signature: &CStr,
    ) -> Result<Option<Object<'_>>, Failure> {
        // SAFETY: a class, and names that end with NUL.
        let id = unsafe {
            (self.functions().GetStaticMethodID)(self.raw, class.raw, name.as_ptr(), signature.as_ptr())
        };
        self.checked(id, name)?;
        // SAFETY: a static method of this class that takes nothing and gives an object, by its signature.
        let raw =
            unsafe { (self.functions().CallStaticObjectMethodA)(self.raw, class.raw, id, std::ptr::null()) };
        self.checked(raw, name)?;
        Ok(self.object(raw))
    }

    /// Calls a method that takes nothing and gives a `long`.
    pub fn call_long(&self, object: Object<'_>, name: &CStr) -> Result<i64, Failure> {
        let id = self.method(object, name, c"()J")?;
        // SAFETY: a method of the object's class with this signature.
        let value = unsafe { (self.functions().CallLongMethodA)(self.raw, object.raw, id, std::ptr::null()) };
        self.checked(value, name)
    }

    /// Calls a method that takes nothing and gives an `int`.
    pub fn call_int(&self, object: Object<'_>, name: &CStr) -> Result<i32, Failure> {
        let id = self.method(object, name, c"()I")?;
        // SAFETY: a method of the object's class with this signature.
        let value = unsafe { (self.functions().CallIntMethodA)(self.raw, object.raw, id, std::ptr::null()) };
        self.checked(value, name)
    }

    /// Calls a method that takes a `long` and gives nothing.
    pub fn call_with_long(&self, object: Object<'_>, name: &CStr, value: jlong) -> Result<(), Failure> {
        let id = self.method(object, name, c"(J)V")?;
        let arguments = [jvalue { j: value }];
        // SAFETY: a method of the object's class with this signature, and its one argument.
        unsafe { (self.functions().CallVoidMethodA)(self.raw, object.raw, id, arguments.as_ptr()) };
        self.checked((), name)
    }

    /// Calls a method that takes an array of objects and gives an `int`.
    pub fn call_with_array(
        &self,
        object: Object<'_>,
        name: &CStr,
        signature: &CStr,
        array: Object<'_>,
    ) -> Result<i32, Failure> {
        let id = self.method(object, name, signature)?;
        let arguments = [jvalue { l: array.raw }];
        // SAFETY: a method of the object's class with this signature, and its one argument.
        let value =
            unsafe { (self.functions().CallIntMethodA)(self.raw, object.raw, id, arguments.as_ptr()) };
        self.checked(value, name)
    }

    /// An array of `length` nulls, for objects of a class.
    pub fn array(&self, length: i32, class: Object<'_>) -> Result<Object<'_>, Failure> {
        // SAFETY: a class; the length is checked by the machine.
        let raw =
            unsafe { (self.functions().NewObjectArray)(self.raw, length, class.raw, std::ptr::null_mut()) };
        self.checked(raw, c"an array")?;
        self.object(raw).ok_or_else(|| failed(c"an array"))
    }

    /// An element of an array of objects; `None` where it is null.
    pub fn element(&self, array: Object<'_>, index: i32) -> Result<Option<Object<'_>>, Failure> {
        // SAFETY: an array of objects; the index is checked by the machine.
        let raw = unsafe { (self.functions().GetObjectArrayElement)(self.raw, array.raw, index) };
        self.checked(raw, c"an element of an array")?;
        Ok(self.object(raw))
    }

    /// The name of an object's class: `java.lang.Thread`.
    pub fn class_name(&self, object: Object<'_>) -> Result<String, Failure> {
        let class = self.class_of(object)?;
        match self.call(class, c"getName", c"()Ljava/lang/String;")? {
            Some(name) => self.string(name),
            None => Ok(String::new()),
        }
    }

    /// What a `java.lang.String` says, in its first bytes; what is no UTF-8 is replaced.
    pub fn string(&self, string: Object<'_>) -> Result<String, Failure> {
        let functions = self.functions();
        // SAFETY: callers have got it from a method or a field that is a string by its signature.
        let length = unsafe { (functions.GetStringLength)(self.raw, string.raw) };
        // A character takes at most three bytes, and a NUL may come behind them.
        let characters = usize::try_from(length).unwrap_or(0).min(STRING_BYTES_MAX / 3);
        let mut bytes = [0u8; STRING_BYTES_MAX + 1];
        let taken = jsize::try_from(characters).unwrap_or(0);
        // SAFETY: that many characters are in the string, and have room.
        unsafe {
            (functions.GetStringUTFRegion)(self.raw, string.raw, 0, taken, bytes.as_mut_ptr().cast());
        }
        self.checked((), c"a string")?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned())
    }
}
