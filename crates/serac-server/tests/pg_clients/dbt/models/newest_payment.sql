{{ config(materialized="materialized_view") }}
select max(id) as id, max(loaded_at) as loaded_at from {{ source("raw", "payment") }}
