{{ config(materialized="incremental", unique_key="id", incremental_strategy="merge") }}
select id, amount, loaded_at from {{ source("raw", "payment") }}
