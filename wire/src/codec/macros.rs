//! The declaration language.
//!
//! ```text
//! structure! {
//!     /// doc
//!     Name {
//!         [versions, null versions, tag number] field: Type = default;
//!     }
//! }
//! message! { Name: ApiKey, versions, flexible first; { fields } }
//! ```
//! `null` and `tag` are optional; so is the default, for which `Type::default()` stands. A type with null versions
//! is an `Option`. A tagged field is tagged in all its versions.

/// Declares structs that occur within messages.
macro_rules! structure {
    ($(
        $(#[$struct_meta:meta])*
        $name:ident {
            $(
                $(#[$meta:meta])*
                [$versions:expr $(, null $null:expr)? $(, tag $tag:literal)?] $field:ident: $type:ty $(= $default:expr)?;
            )*
        }
    )+) => { $(
        $(#[$struct_meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: field_default!($type $(, $default)?),)* }
            }
        }

        impl $crate::codec::Structure for $name {
            fn read_structure(
                reader: &mut $crate::codec::Reader,
                cx: $crate::codec::Context,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let mut value = Self::default();
                $(unless_tagged! { $($tag)?;
                    if ($versions).contains(&cx.version) {
                        reader.enter(stringify!($field));
                        let nullable = field_nullable!(cx.version $(, $null)?);
                        value.$field = $crate::codec::Field::read(reader, cx, nullable)?;
                    }
                })*
                if cx.flexible {
                    value.read_tags(reader, cx)?;
                }
                Ok(value)
            }

            fn read_tag(
                &mut self,
                tag: u32,
                size: usize,
                reader: &mut $crate::codec::Reader,
                cx: $crate::codec::Context,
            ) -> Result<bool, $crate::codec::DecodeError> {
                $(if_tagged! { $($tag)?;
                    if tag == TAG {
                        reader.enter(stringify!($field));
                        if !($versions).contains(&cx.version) {
                            let kind = $crate::codec::DecodeErrorKind::TagNotInVersion { tag, version: cx.version };
                            return Err(reader.error(kind));
                        }
                        let nullable = field_nullable!(cx.version $(, $null)?);
                        self.$field = reader.tagged(tag, size, |r| $crate::codec::Field::read(r, cx, nullable))?;
                        return Ok(true);
                    }
                })*
                let _ = (tag, size, reader, cx);
                Ok(false)
            }

            fn write_structure(
                &self,
                out: &mut bytes::BytesMut,
                cx: $crate::codec::Context,
            ) -> Result<(), $crate::codec::EncodeError> {
                $(unless_tagged! { $($tag)?;
                    if ($versions).contains(&cx.version) {
                        let nullable = field_nullable!(cx.version $(, $null)?);
                        $crate::codec::Field::write(&self.$field, out, cx, nullable)?;
                    }
                })*
                self.write_tags(out, cx)
            }

            fn collect_tags(
                &self,
                tags: &mut $crate::codec::TagWriter,
                cx: $crate::codec::Context,
            ) -> Result<(), $crate::codec::EncodeError> {
                $(if_tagged! { $($tag)?;
                    let default: $type = field_default!($type $(, $default)?);
                    if ($versions).contains(&cx.version) && self.$field != default {
                        let nullable = field_nullable!(cx.version $(, $null)?);
                        tags.add(TAG, &self.$field, cx, nullable)?;
                    }
                })*
                let _ = (tags, cx);
                Ok(())
            }

            fn fields() -> Vec<$crate::codec::FieldSpec> {
                vec![$($crate::codec::FieldSpec {
                    name: stringify!($field),
                    kind: <$type as $crate::codec::Field>::kind(),
                    versions: ($versions).into(),
                    nullable: spec_nullable!($($null)?),
                    tag: spec_tag!($($tag)?),
                },)*]
            }
        }

        impl $crate::codec::Field for $name {
            fn read(
                reader: &mut $crate::codec::Reader,
                cx: $crate::codec::Context,
                _: bool,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $crate::codec::Structure::read_structure(reader, cx)
            }

            fn write(
                &self,
                out: &mut bytes::BytesMut,
                cx: $crate::codec::Context,
                _: bool,
            ) -> Result<(), $crate::codec::EncodeError> {
                $crate::codec::Structure::write_structure(self, out, cx)
            }

            fn kind() -> $crate::codec::Kind {
                $crate::codec::Kind::Structure(<Self as $crate::codec::Structure>::fields)
            }
        }

        impl $crate::codec::Nullable for $name {
            fn read_nullable(
                reader: &mut $crate::codec::Reader,
                cx: $crate::codec::Context,
            ) -> Result<Option<Self>, $crate::codec::DecodeError> {
                $crate::codec::read_nullable_structure(reader, cx)
            }

            fn write_nullable(
                value: Option<&Self>,
                out: &mut bytes::BytesMut,
                cx: $crate::codec::Context,
            ) -> Result<(), $crate::codec::EncodeError> {
                $crate::codec::write_nullable_structure(value, out, cx)
            }
        }
    )+ };
}

/// Declares a request or response body: the struct and its [`Message`](crate::codec::Message).
macro_rules! message {
    (
        $(#[$meta:meta])*
        $name:ident: $key:ident, $versions:expr, flexible $flexible:expr; { $($fields:tt)* }
    ) => {
        structure! { $(#[$meta])* $name { $($fields)* } }

        impl $crate::codec::Message for $name {
            const KEY: $crate::api::ApiKey = $crate::api::ApiKey::$key;
            const VERSIONS: std::ops::RangeInclusive<i16> = $versions;
            const FLEXIBLE_FROM: i16 = $flexible;
        }
    };
}

macro_rules! field_default {
    ($type:ty) => {
        <$type>::default()
    };
    ($type:ty, $default:expr) => {
        $default
    };
}

macro_rules! field_nullable {
    ($version:expr) => {
        false
    };
    ($version:expr, $null:expr) => {
        ($null).contains(&$version)
    };
}

macro_rules! unless_tagged {
    (; $($body:tt)*) => { $($body)* };
    ($tag:literal; $($body:tt)*) => {};
}

/// Runs the body for a tagged field, whose number it sees as `TAG`.
macro_rules! if_tagged {
    (; $($body:tt)*) => {};
    ($tag:literal; $($body:tt)*) => {{
        const TAG: u32 = $tag;
        $($body)*
    }};
}

macro_rules! spec_nullable {
    () => {
        $crate::codec::Versions::NONE
    };
    ($null:expr) => {
        ($null).into()
    };
}

macro_rules! spec_tag {
    () => {
        None
    };
    ($tag:literal) => {
        Some($tag)
    };
}
