//! Writes tables of plain columns as Parquet files ([`ParquetFile`]), for DuckDB, pandas and other readers.
//!
//! Unsigned numbers and text have the logical types of the format (INTEGER, STRING), columns are compressed with zstd,
//! and no column has nulls (<https://github.com/apache/parquet-format>, LogicalTypes.md).

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 32-bit unsigned integers.
    U32,
    /// 64-bit unsigned integers.
    U64,
    /// 64-bit signed integers.
    I64,
    /// 64-bit floating-point numbers.
    F64,
    Bool,
    /// UTF-8 text.
    Text,
}

/// The values of one column in a row group.
#[derive(Clone, Debug)]
pub enum Column {
    /// Values of a [`ColumnType::U32`].
    U32(Vec<u32>),
    /// Values of a [`ColumnType::U64`].
    U64(Vec<u64>),
    /// Values of a [`ColumnType::I64`].
    I64(Vec<i64>),
    /// Values of a [`ColumnType::F64`].
    F64(Vec<f64>),
    /// Values of a [`ColumnType::Bool`].
    Bool(Vec<bool>),
    /// Values of a [`ColumnType::Text`].
    Text(Vec<Cow<'static, str>>),
}

/// A Parquet file that is being written.
pub struct ParquetFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> ParquetFile<W> {
    /// Begins a file with these columns, given by name and type.
    pub fn new(to: W, columns: &[(&str, ColumnType)]) -> Result<ParquetFile<W>, ParquetError> {
        let fields = columns.iter().map(|(name, column)| field(name, *column).map(Arc::new));
        let schema = Type::group_type_builder("schema").with_fields(fields.collect::<Result<_, _>>()?).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
        Ok(ParquetFile { writer: SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))? })
    }

    /// Writes rows as one row group. Files are read fastest with groups of some hundred thousand rows. It is an error if types or
    /// lengths of the columns do not match the file's.
    pub fn write(&mut self, columns: &[Column]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in columns {
            let mut next =
                group.next_column()?.ok_or_else(|| ParquetError::General("more columns than named".into()))?;
            match column {
                Column::U32(values) => {
                    let values: Vec<i32> = values.iter().map(|value| value.cast_signed()).collect();
                    next.typed::<Int32Type>().write_batch(&values, None, None)?;
                }
                Column::U64(values) => {
                    let values: Vec<i64> = values.iter().map(|value| value.cast_signed()).collect();
                    next.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                Column::I64(values) => {
                    next.typed::<Int64Type>().write_batch(values, None, None)?;
                }
                Column::F64(values) => {
                    next.typed::<DoubleType>().write_batch(values, None, None)?;
                }
                Column::Bool(values) => {
                    next.typed::<BoolType>().write_batch(values, None, None)?;
                }
                Column::Text(values) => {
                    let values: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(text.as_ref())).collect();
                    next.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                }
            }
            next.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the footer, without which the file cannot be read.
    pub fn finish(self) -> Result<W, ParquetError> {
        self.writer.into_inner()
    }
}

fn field(name: &str, column: ColumnType) -> Result<Type, ParquetError> {
    let (physical, converted) = match column {
        ColumnType::U32 => (Physical::INT32, ConvertedType::UINT_32),
        ColumnType::U64 => (Physical::INT64, ConvertedType::UINT_64),
        ColumnType::I64 => (Physical::INT64, ConvertedType::INT_64),
        ColumnType::F64 => (Physical::DOUBLE, ConvertedType::NONE),
        ColumnType::Bool => (Physical::BOOLEAN, ConvertedType::NONE),
        ColumnType::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
    builder.with_converted_type(converted).build()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    #[test]
    fn written_files_are_read_by_the_crates_own_reader() {
        let columns = [
            ("small", ColumnType::U32),
            ("large", ColumnType::U64),
            ("signed", ColumnType::I64),
            ("flag", ColumnType::Bool),
            ("text", ColumnType::Text),
        ];
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut file = ParquetFile::new(path.reopen().unwrap(), &columns).unwrap();
        for row in 0..2 {
            let rows = [
                Column::U32(vec![u32::MAX, row]),
                Column::U64(vec![u64::MAX, 7]),
                Column::I64(vec![-1, 8]),
                Column::Bool(vec![true, false]),
                Column::Text(vec!["a \"b\" \u{e9}".into(), "".into()]),
            ];
            file.write(&rows).unwrap();
        }
        file.finish().unwrap();
        let reader = SerializedFileReader::new(path.reopen().unwrap()).unwrap();
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        assert_eq!(rows.len(), 4);
        let text = Field::Str("a \"b\" \u{e9}".to_owned());
        assert_eq!(rows[0], [Field::UInt(u32::MAX), Field::ULong(u64::MAX), Field::Long(-1), Field::Bool(true), text]);
        assert_eq!(rows[3][0], Field::UInt(1));
    }

    #[test]
    fn columns_of_another_length_are_refused() {
        let mut file = ParquetFile::new(Vec::new(), &[("a", ColumnType::U32), ("b", ColumnType::U32)]).unwrap();
        assert!(file.write(&[Column::U32(vec![1]), Column::U32(vec![1, 2])]).is_err());
    }
}
