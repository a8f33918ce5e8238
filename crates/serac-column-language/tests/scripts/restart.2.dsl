f=fetch(x.i.b,gone) -- error
p=select(x.i.b,2,5)
f=fetch(x.i.a,p)
s=sum(f)
n=select(x.i.a,1,4)
g=fetch(x.i.b,n)
t=sum(g)
print(s,t)
